"""Choice between options that experts rate: designs and theories."""
