"""The report: one self-contained HTML page a pool. Only `facts` knows Spark; nothing here decides what is recommended.

`facts` asks the tables, `evidence` reads a recommendation, and `content` holds the values of both. `sections`,
`recommended`, `promised`, `causes` and `advice` turn these into sections, of `cards`, `charts` and `numbers`. `page`
puts them together; `element` is HTML and SVG.
"""
