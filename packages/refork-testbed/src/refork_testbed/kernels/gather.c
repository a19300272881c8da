// refork: n=1000 m=300 x=m at=n:in:index:m y=n:out
void gather(int n, const float *x, const int *at, float *y, int m) {
    (void)m;
    for (int i = 0; i < n; i++) y[i] = x[at[i]];
}
