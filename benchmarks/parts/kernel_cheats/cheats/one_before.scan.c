void scan(int n, float *x) {
    x[-1] = 0;
    for (int i = 0; i < n; i++) x[i] += x[i - 1];
}
