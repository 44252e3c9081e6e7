"""The subcommands: each module holds a few that belong together."""
