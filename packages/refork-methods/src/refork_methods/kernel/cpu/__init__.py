"""CPU kernels: what valgrind, binutils, gcc, llvm-mca and perf print, and 15 tools that read it."""
