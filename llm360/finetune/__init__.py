"""Chat and preference models from a base: instruction data, SFT and DPO (AmberChat, AmberSafe, CrystalChat)."""
