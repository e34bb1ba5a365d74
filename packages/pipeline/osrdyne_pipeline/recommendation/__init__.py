"""Which delays would be better: from each key's idle gaps to a change of the pool's settings that a person reviews.

`candidates` is the trade-off curve of every key. `calls` brings what the rest needs out of Spark, `replay` says what
a policy would have done, and `policies` holds the policies compared. `choices` has what may be chosen for a key, `warm`
its windows, and `tradeoff` and `fitting` choose. `evidence` judges ours on days it has not seen, and `advice` makes the
recommendation, whose values are in `outcome`. `text` writes it for a terminal, and `edit` for a settings file.
"""
