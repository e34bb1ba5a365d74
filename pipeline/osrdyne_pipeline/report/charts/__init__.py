"""Charts: plain numbers in, an SVG element out. No I/O, no Spark, no colours: those are in page.css."""
