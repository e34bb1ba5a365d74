// Pulumi's Kubernetes plugin. Its own main needs a schema that only a release has; a program needs no more of it than this.
package main

import (
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// version is set by the linker.
var version = "0.0.0"

func main() {
	schema := fmt.Sprintf(`{"name": "kubernetes", "version": %q}`, version)
	provider.Serve("kubernetes", version, []byte(schema), []byte("{}"))
}
