// Reads docker-compose.yml as `docker compose config` does, with the library that it is built on, and prints the result.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithInterpolation(true))
	if err == nil {
		project, failure := options.LoadProject(context.Background())
		if failure == nil {
			text, marshal := project.MarshalYAML()
			if marshal == nil {
				fmt.Print(string(text))
				return
			}
			failure = marshal
		}
		err = failure
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
