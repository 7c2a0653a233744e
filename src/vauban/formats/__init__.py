"""Result files of other tools, read and written: one file for each layout, behind the registry in `choice`."""
