"""Attacks on the command, one file each, and the ground that they stand on."""
