"""What makes a package of the components, for programs in other languages: `pulumi-resource-osrdyne` is its plugin.

`resource` is what our own resources are made of, `pools` the component of the package, `schema` says what it takes and
gives, and `plugin` serves both to Pulumi's engine.
"""
