"""What may be chosen for a key: `behaviour` names how it is called, `spans` finds when after its last call it is kept,
and `options` counts delays, windows and spans on days that they were not learnt from. `failing` has the keys for which
nothing may be chosen.
"""
