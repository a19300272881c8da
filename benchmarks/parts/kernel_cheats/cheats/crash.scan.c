void scan(int n, float *x) { (void)x; *(volatile int *)0 = n; }
