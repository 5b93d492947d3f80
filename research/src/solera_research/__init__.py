"""Research beside Solera: the papers' tables and figures, the leak, attacks, speed and scale."""
