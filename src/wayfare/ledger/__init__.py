"""The ledger of claims: what the papers say, as data, and what runs say about it."""
