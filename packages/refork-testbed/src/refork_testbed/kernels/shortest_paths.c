// refork: n=32 d=n*n:inout:positive
void shortest_paths(int n, int *d) {
    int i, j, k;
    for (k = 0; k < n; k++)
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                d[i * n + j] = d[i * n + j] < d[i * n + k] + d[k * n + j] ? d[i * n + j] : d[i * n + k] + d[k * n + j];
}
