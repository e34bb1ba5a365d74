// Package provider bridges the Terraform provider of RabbitMQ to Pulumi, under the names of Pulumi's own plugin.
package provider

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/tokens"
	sdkv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/terraform-providers/terraform-provider-rabbitmq/rabbitmq"
)

// Version is that of the Python package that it serves.
const Version = "3.5.3"

// Info maps the resources to the tokens that the Python package asks for.
func Info() tfbridge.ProviderInfo {
	info := tfbridge.ProviderInfo{
		P:            sdkv2.NewProvider(rabbitmq.Provider()),
		Name:         "rabbitmq",
		Version:      Version,
		GitHubOrg:    "cyrilgdn",
		Resources:    map[string]*tfbridge.ResourceInfo{"rabbitmq_vhost": {Tok: "rabbitmq:index/vHost:VHost"}},
		MetadataInfo: tfbridge.NewProviderMetadata([]byte("{}")),
	}
	info.MustComputeTokens(tokens.SingleModule("rabbitmq_", "index", tokens.MakeStandard("rabbitmq")))
	info.SetAutonaming(255, "-")
	return info
}
