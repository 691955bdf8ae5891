"""Engines that explore and drive machines."""
