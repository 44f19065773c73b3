"""The version of cmlib: said here, read by everything else."""

VERSION = "0.1.0"
