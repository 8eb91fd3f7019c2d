"""Text to tokens and back: the tokenizer, its fastest proven encoder, fill-in-the-middle."""
