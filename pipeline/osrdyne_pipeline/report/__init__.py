"""The report: one self-contained HTML page a pool. `facts` asks the tables, `sections` and `charts` turn plain numbers
into elements, `page` puts them together. Only `facts` knows Spark; nothing here decides what is recommended.
"""
