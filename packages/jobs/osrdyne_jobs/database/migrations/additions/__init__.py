"""One module an addition: what programs of the release before need not know."""
