// The plugin; its schema, which tfgen wrote, is beside it.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"

	"osrdyne/tests/pulumi-rabbitmq"
)

func main() {
	program, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(program), "schema.json"))
	if err != nil {
		log.Fatal(err)
	}
	tfbridge.Main("rabbitmq", provider.Version, provider.Info(), schema)
}
