"""Our packages from an index of their own, in fresh environments, with what the registries give."""
