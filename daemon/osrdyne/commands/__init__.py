"""The commands of `osrdyne`, one module each: parse, ask, print. What they know, they know from elsewhere."""
