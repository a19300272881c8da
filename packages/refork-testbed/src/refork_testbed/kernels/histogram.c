// refork: n=2000 bins=64 x=n:in:skewed-index:bins h=bins:inout
void histogram(int n, int bins, const int *x, int *h) {
    for (int i = 0; i < bins; i++) h[i] = 0;
    for (int i = 0; i < n; i++) h[x[i]]++;
}
