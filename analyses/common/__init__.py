"""What the analyses share: how one is run, where its inputs lie, how its figures look."""
