"""scalewright: does this change to the Transformer help, by how much, and does the gain hold?"""
