// Writes the schema of the provider.
package main

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfgen"

	"osrdyne/tests/pulumi-rabbitmq"
)

func main() { tfgen.Main("rabbitmq", provider.Version, provider.Info()) }
