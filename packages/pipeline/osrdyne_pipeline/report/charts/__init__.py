"""Charts: plain numbers in, an SVG element out. No I/O, no Spark, no colours: those are in page.css.

`bars`, `columns`, `heatmap` and `tradeoff` are the kinds of charts; `frame` is what all have.
"""
