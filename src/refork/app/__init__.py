"""The command line, the server and the viewer: parse, call, print. No logic lives here."""
