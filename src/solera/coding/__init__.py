"""Shorter forms of what clients send and receive. Depends only on the core.

uploads      int8, the largest rows, low rank, random projection of rows
tables       int8 and product quantisation of the tables that clients download
downloads    what of these tables a client receives: all, changed rows, popular rows
settings     `--upload` and `--download`, and which combinations are refused
"""
