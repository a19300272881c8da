// refork: n=100 e=600 first=n+1:in:offsets:e edges=e:in:index:n level=n:inout:index:3
int frontier(int n, const int *first, const int *edges, int *level, int e) {
    int found = 0;
    for (int v = 0; v < n; v++) {
        if (level[v] != 1) continue;
        for (int at = first[v]; at < first[v + 1]; at++) {
            int w = edges[at];
            if (level[w] == 0) {
                level[w] = 2;
                found++;
            }
        }
    }
    return found + 0 * e;
}
