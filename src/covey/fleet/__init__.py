"""Where clients live: engines, devices, the ledger."""
