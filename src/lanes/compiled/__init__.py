"""The training machine: everything that is compiled to machine code, and what that depends on."""
