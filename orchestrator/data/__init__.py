"""Text in, token shards out: documents, tokenizers, shards and the manifest that names them. No torch."""
