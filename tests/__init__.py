"""The tests, in rings: unit, integration, acceptance; bench measures side by side."""
