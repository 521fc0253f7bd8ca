"""One HTML page with figures about packed models."""
