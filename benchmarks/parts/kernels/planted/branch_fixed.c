// Written always, counted where it is kept: no branch on the data.
// refork: entry=keep n=16384 x=n y=n:out flops=n bytes=8*n
int keep(int n, const float *restrict x, float *restrict y)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        y[kept] = x[i];
        kept += x[i] > 0;
    }
    for (int i = kept; i < n; i++)
        y[i] = 0;
    return kept;
}
