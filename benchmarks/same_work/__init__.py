"""Programs whose true effect of each setting is known by construction."""
