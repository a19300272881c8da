"""Choice between gambles: designs and theories."""
