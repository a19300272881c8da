// refork: n=20000 x=n:inout:positive
void scan(int n, float *x) {
    for (int i = 1; i < n; i++) x[i] += x[i - 1];
}
