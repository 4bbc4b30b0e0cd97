"""torchsan in other clothes: pytest, notebooks, trainers, editors. The public API is all they use."""
