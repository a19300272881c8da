// refork: entry=histogram n=4194304 bins=256 x=n::skewed-index:bins h=bins:out flops=n bytes=4*n
void histogram(int n, int bins, const int *x, int *h) {
    for (int b = 0; b < bins; b++)
        h[b] = 0;
    for (int i = 0; i < n; i++)
        h[x[i]]++;
}
