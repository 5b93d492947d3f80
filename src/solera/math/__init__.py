"""Mathematics that methods, baselines, engines and devices share. Depends on the core alone."""
