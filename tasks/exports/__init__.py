"""What leaves the house: one file per format, following docs/formats.md."""
