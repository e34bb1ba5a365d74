"""The commands of `osrdyne`, a module or a package each: parse, ask, print."""
