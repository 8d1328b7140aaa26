"""The Hugging Face hub: file metadata, downloads and the shared cache."""
