"""Models for other checkers, written from the traced table: TLA+ for TLC, Promela for SPIN."""
