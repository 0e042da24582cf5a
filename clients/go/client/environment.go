package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// FromEnvironment reads JACKALOPE_GRPC, JACKALOPE_TOKEN and JACKALOPE_CA.
func FromEnvironment() (Options, error) {
	options := Options{Address: os.Getenv("JACKALOPE_GRPC"), Token: os.Getenv("JACKALOPE_TOKEN")}
	if options.Address == "" {
		options.Address = "127.0.0.1:7422"
	}
	if file := os.Getenv("JACKALOPE_CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return options, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return options, fmt.Errorf("%s has no certificate in PEM form", file)
		}
		options.TLS = &tls.Config{RootCAs: pool}
	}
	return options, nil
}
