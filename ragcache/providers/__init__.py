"""Dated rules and prices of providers."""
